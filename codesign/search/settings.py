"""The numbers that steer each search and change no claim of it: how much is tried, in which order, how finely.

Whatever they are, bounds hold and designs are evaluated exactly; they decide what a proof costs, and how good the best
design is when time runs out. Tolerances, which claims do rest on, stand beside the code that uses them.

`benchmarks/settings.py` measures what those of branch and bound are worth.
"""

from dataclasses import dataclass

__all__ = ["BRANCH_AND_BOUND", "AmortisedSettings", "BranchAndBoundSettings", "FrontSettings", "MixSettings"]


@dataclass(frozen=True)
class BranchAndBoundSettings:
    """Settings of `branch_and_bound/`.

    Incumbent:
        halvings: rounds of a plan while the incumbent is sought; a programme that has not settled by then is bounded
            by what others teach it.
        fewest: plans that get all these rounds; some must be left to compare.
        reference_rounds: of plans solved to bound others from: their multipliers, not their optima, are needed.
        worst_reference: log by which the optimum of such a plan may lie above the incumbent; beyond a factor of two it
            trades its resources unlike the best.
        climbs: rounds of better plans at the best hardware; a round that brings less than the gap is the last anyhow.
        followed: groups followed down to plans in each round: a few times the plans that are then solved.
        cheap: least price of a unit of violation where plans are ranked at the best hardware: what a limit is worth
            that does not bind there, but might elsewhere.
        rivals: next-best plans whose neighbours are looked at as well: the optimum often differs in one field of each.

    Closing:
        most_tries: rounds after which a plan is left open, and told; so many are never needed where rows are convex.
        group_tries: rounds after which a group that is still open is split: its relaxation is not exact, so that more
            of them bring ever less.
        reference_sharpness: of cuts at a point that several plans share: soft enough to lean between the branches of a
            maximum that bind elsewhere.

    Programmes:
        most_cuts: of a plan; some times the variables and rows that can bind at once, so that none of use is dropped.
        lengths: cuts up to which plans are solved in one batch: the longest programme sets the length of all.
        spread, share: a programme's centre lies at this share of the plan's gap above its optimum, and it is solved to
            this share of it: what the next cut, not this programme, will decide need not be known.
        kink, sharpest, softest, sharpening: of cuts, this over the plan's gap, so that branches of a maximum are told
            apart by what is still open; at most the sharpest; at least the softest, times `sharpening` a round, since
            rows of great weight need sharper kinks than the gap tells.
        dear, raised, dearest: where multipliers take up this share of the price of violations it was too low, and is
            raised by this factor, up to the dearest.
        dear_enough, least_price: price of a unit of violation in merit estimates: where no multiplier is known, and
            what is added to those that are.

    Measured, by how much the points asked for change over three instances proven to 0.1 %, halved and doubled: spread
    +14 and +16 %, least_price 0 and +23, followed -10 and +8, cheap -8 and -1, sharpening -7 and 0, fewest -6 and -1,
    softest -3 and -5, share -4 and 0, rivals -1 and +3, halvings and worst_reference within 2, all others within 0.5:
    no number is finely tuned, and none is left at a cliff.
    """

    halvings: int = 9
    fewest: int = 8
    reference_rounds: int = 4
    worst_reference: float = 0.7
    climbs: int = 8
    followed: int = 64
    cheap: float = 0.05
    rivals: int = 6
    most_tries: int = 80
    group_tries: int = 8
    reference_sharpness: float = 50.0
    most_cuts: int = 48
    lengths: tuple[int, ...] = (3, 8, 20)
    spread: float = 0.3
    share: float = 0.03
    kink: float = 3.0
    sharpest: float = 1e6
    softest: float = 30.0
    sharpening: float = 1.6
    dear: float = 0.9
    raised: float = 4.0
    dearest: float = 1e6
    dear_enough: float = 8.0
    least_price: float = 0.2


@dataclass(frozen=True)
class FrontSettings:
    """Settings of `front/`.

    Sequence:
        start: plans that the neighbouring programme solved and the next begins with: as many as a first batch.
        first_rounds: of these, before anything else: they have the cuts of next door already.
        chunk: plans bounded again in one go; larger ones leave the cache.
        next_door: log of what is allowed by which programmes differ that help each other's plans; beyond, another plan
            is best and multipliers mislead.

    Levels:
        reserved: share of the time for designs between the programmes.
        wave: cells whose middles are solved side by side: enough for full batches, few enough to learn in between.
        block: blends that are proven side by side, likewise.

    Between:
        neighbours: of each neighbouring programme, its best plans are tried at the levels between.
        rounds: of a plan at a level.
        penalty: price of a unit of log-violation where plans are ranked at hardware that is another's.
        fine: share of the gap to which designs between are solved, so that what is left of it is for the bound.
        most_pairs: plans at levels that are closed side by side: what fits into memory.
        most_open: plans of one level; with more of them left its own programme is cheaper.

    Blends:
        blends: on the way from a design to a neighbour; each costs one evaluation.
        nearest: designs that count as neighbours where a front is a surface: the corners of a cube.

    Cuts:
        memory_bytes: largest store of cuts.
        deepest: cuts remembered of one plan; older ones are of other levels.
        room: numbers there is room for, over those given out, when more is made: growth by copying stays linear.
    """

    start: int = 64
    first_rounds: int = 4
    chunk: int = 32768
    next_door: float = 0.2
    reserved: float = 0.3
    wave: int = 32
    block: int = 256
    neighbours: int = 8
    rounds: int = 12
    penalty: float = 8.0
    fine: float = 0.05
    most_pairs: int = 100_000
    most_open: int = 20_000
    blends: int = 8
    nearest: int = 8
    memory_bytes: float = 400e6
    deepest: int = 4
    room: float = 1.5


@dataclass(frozen=True)
class MixSettings:
    """Settings of `mix/`.

    Tuples:
        sample, starts, shortlist: plans of each workload looked at first, at so many places, and those kept of each.
        beam: tuples followed at first: workloads that would all gain by moving together do not move one by one.
        shares: plans exchanged for each workload: best at the multipliers' prices of violations, at 1, 8 and 64; the
            multipliers are right near the optimum, the others find a way back to what is feasible.
        least_price: added to those of the multipliers.
        rounds: of the programmes of a batch of tuples.
        near: fields in which the neighbours of a plan differ.
        enough, rather: share of the gap that makes a step worth another; log below which a perturbation gains more.

    Perturbations:
        places, spreads, moved: how many, how far from the best (from the least to the most, log-uniform), share of the
            variables that move: little of all and much of some are both seen.
        led, depth: plans of the envelope whose neighbours are looked at, and how often.
        tried, solved: plans evaluated at each place, places whose tuples are solved.
        fresh: random plans looked at besides, so that no plan is out of reach.
        most_kicks, in_vain: perturbations at the most, and those without a gain that end them.

    Bounds:
        pool, most_whole: plans of a workload in a relaxed master problem, plans in all in an integer one: what HiGHS
            solves in a second.
        coarsest: log to which the least leaned goal of a workload is known at first.
        batch: plans told apart at once.
        sharpness: of cuts where the relaxed master problem has its solution.
        cuts, most_kept: of a plan, in one master problem and at all.
        tuples: that are solved in every round.
    """

    sample: int = 512
    starts: int = 8
    shortlist: int = 16
    beam: int = 3
    shares: tuple[int, int, int, int] = (8, 2, 2, 2)
    least_price: float = 0.05
    rounds: int = 7
    near: int = 2
    enough: float = 0.5
    rather: float = 0.01
    places: int = 96
    spreads: tuple[float, float] = (0.02, 0.4)
    moved: float = 0.4
    led: int = 4
    depth: int = 2
    tried: int = 4
    solved: int = 32
    fresh: int = 256
    most_kicks: int = 12
    in_vain: int = 3
    pool: int = 24
    most_whole: int = 600
    coarsest: float = 0.02
    batch: int = 512
    sharpness: float = 100.0
    cuts: int = 16
    most_kept: int = 24
    tuples: int = 8


@dataclass(frozen=True)
class AmortisedSettings:
    """Settings of the answer and the boxes of `amortised/`; training has its own, since the networks rest on them.

    screened, solved: points in one call of the hard model, and of the one with cuts: the compiled shapes.
    checked: best scores whose rules are checked. first, likely: of these, screened at their own hardware, and at that
    of the best design. changes: fields in which plans screened at the best design may differ from its plan.
    prices, price: of a unit of log-violation, by which plans are chosen, cheap to dear; of each kind of plan.
    each, chosen: plans chosen by each price, and by their scores. exchanges: rounds of these.
    rounds, left, fewest: of a plan's programme; share of the plans, and how many, that stay after each.
    reach, shrink: half the first box's width, about what the network misses by; what is left of it where a step stayed
    inside or did not help. least_price: of a unit of violation, beyond twice its multiplier, when points are compared.
    most_gap: taken for the gap of a plan at its first box. tolerance: of programmes, least and most.
    """

    screened: int = 256
    solved: int = 16
    checked: int = 4096
    first: int = 512
    likely: int = 1024
    changes: int = 2
    prices: tuple[float, ...] = (0.5, 2.0, 10.0)
    price: float = 2.0
    each: int = 8
    chosen: int = 32
    exchanges: int = 3
    rounds: int = 14
    left: float = 0.5
    fewest: int = 3
    reach: float = 0.15
    shrink: float = 0.6
    least_price: float = 1.0
    most_gap: float = 0.3
    tolerance: tuple[float, float] = (1e-5, 5e-3)


BRANCH_AND_BOUND, FRONT, MIX = BranchAndBoundSettings(), FrontSettings(), MixSettings()
AMORTISED = AmortisedSettings()
