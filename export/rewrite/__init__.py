"""From a verified Graph and its constants to a simpler one that computes the same: pure functions, in a fixed order."""
