"""The parity suite: one body of tests over `mxnet.gluon.data` and over `gluonloader.mxnet`."""
