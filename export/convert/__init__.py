"""From the nodes of a decomposed program to the ops of a Graph: a table has a function for each of torch's ops, which
emits through the Builder, and a walk over the nodes calls them. What has no place in a Graph is refused, all of it at
once."""
