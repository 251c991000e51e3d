"""What holds from size 2 on only. torch traces no smaller ones: from a captured program and what it asked of sizes come
the decisions that sizes of 0 and 1 would turn, and runs of the module tell which of them matter."""
