"""Whether this working tree gives the same bits as an earlier commit: every strategy, two models, three layouts.

    make same-bits BASE=7f877ab [ONLY=fedpns,fedavg] [MODELS=mlr] [LAYOUTS=in-process]
    python -m benchmarks.same_bits --compare BASE.jsonl HERE.jsonl

The commit is checked out into `.same-bits/<commit>/` with its own environment, which is kept for the next time. Both
sides run the same small experiments at the same time, each in one process with one Ray, on the CPU. It compares
the SHA-256 of the weights and of the population, and every record of every round except its times. A key that only
this tree records is listed; a key that it no longer records is a difference. CNN-M needs MNIST under FEDPNS_DATA.

Exit code 0: all equal; 1: a difference, or a side that did not finish; 2: bad input. (`make` turns 1 into 2.)
The results of both sides stay in `.same-bits/last/`.
"""
