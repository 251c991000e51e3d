"""From the program as torch.export gives it to one of the ops that the conversion table has: torch's decompositions,
where they say what eager mode does, and ours elsewhere. Capture takes it as its last step."""
