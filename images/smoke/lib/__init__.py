"""What the smoke tests share. They run in the image: standard library only, plus what the image holds."""
