"""From a module and example inputs to a program: torch.export's, decomposed, with what was declared of its dynamic
dimensions and the conditions on sizes under which it is right. What a program could not tell, or would do wrong, is
refused here, with the user's line."""
