"""The store of built components: wheels that were compiled once, kept under the key of everything they came from."""
