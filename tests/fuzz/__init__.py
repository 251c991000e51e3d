"""A differential fuzzer: programs are drawn from seeds, exported, compiled, run in every way, and compared with eager.

    tensors, program    what a program is: text, and tensors described by text
    draw, families/     programs from seeds
    disturb, judge      what eager may give when its roundings differ, and whether a result lies outside of that
    ways                how a program is run: on the CPU, on a GPU, through Triton's interpreter, as a graph
    children, hunt      programs in processes of their own, with time limits; many at once
    shrink, script      what fails becomes small, and a file to send around
    rules, rule_*       rewrites and fusions one at a time
    mutants, sieve, mutant_hunt  faults put in on purpose; which programs may show one; how many until one is found
    report, command     what a person reads

python -m tests.fuzz --help, or ./dev fuzz models --help.
"""
