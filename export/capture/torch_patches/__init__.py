"""Changes to the insides of torch while a module is captured, a file for each; each says why, and for which torch."""
