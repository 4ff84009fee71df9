"""Pretrained matrices on disk: readers by format, row ranges, alignment to a vocabulary."""
