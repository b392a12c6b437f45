"""The GPU path, counted and checked: without a GPU on a device that is only pretended, with one in five minutes."""
