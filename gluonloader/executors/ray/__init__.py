"""The Ray executor: workers are Ray actors, perhaps on other machines. It imports Ray only when it is used."""
