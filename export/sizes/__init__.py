"""Sizes, strides and conditions on them as torch has them, in whole numbers: its symbolic expressions become Exprs and
Guards, and what the user declared of dynamic dimensions is held against them. All stages that know torch's programs ask
here."""
