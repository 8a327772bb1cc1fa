"""Records of a namespace under keys, and indexes that follow them."""
