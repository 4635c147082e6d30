"""DeepInfer's request scheduler, recorded from inside the program (`hooks.start`)."""
