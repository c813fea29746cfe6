"""timm: its loader for images, with a prefetching wrapper and its own collate function, without augmentation."""

import warnings

import numpy as np
from PIL import Image
from show import show, workers
from timm.data import create_loader
from torch.utils.data import Dataset

warnings.filterwarnings("ignore", ".*pin_memory.*")
count = workers()
images = [Image.fromarray(np.random.randint(0, 255, (20, 24, 3), np.uint8)) for _ in range(21)]


class Images(Dataset):
    transform = None

    def __len__(self):
        return len(images)

    def __getitem__(self, index):
        return self.transform(images[index]), index


loader = create_loader(
    Images(), (3, 16, 16), 4, is_training=False, num_workers=count, use_prefetcher=False, persistent_workers=count > 0
)
for _ in range(2):
    for batch in loader:
        show(list(batch))
