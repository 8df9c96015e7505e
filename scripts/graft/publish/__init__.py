"""Publishing: what is attached to an image, signatures, channels and their record, and the check of all of it."""
