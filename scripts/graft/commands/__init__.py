"""The verbs, one module for each group. Each reads like its sentence in the README."""
