"""Pipeline schedules as lists of operations of each stage, and their execution: what closed forms are compared with.

An operation is a tuple of parts that a stage runs as one; a part is (kind, micro-batch, chunk) with the kinds F, B
(input gradients) and W (weight gradients). A stage runs its list in order, each operation when what its parts wait for
is done.
"""

from collections.abc import Callable

Part = tuple[str, int, int]
Order = list[tuple[Part, ...]]
Needs = Callable[[int, Part], list[tuple[int, Part]]]


def executed(orders: list[Order], needs: Needs, seconds: dict[str, float]) -> float:
    """When the last operation ends."""
    ends: dict[tuple[int, Part], float] = {}
    free, at, left = [0.0] * len(orders), [0] * len(orders), sum(map(len, orders))
    while left:
        before = left
        for stage, order in enumerate(orders):
            while at[stage] < len(order):
                parts = order[at[stage]]
                own = {(stage, part) for part in parts}
                waits = [need for part in parts for need in needs(stage, part) if need not in own]
                if any(need not in ends for need in waits):
                    break
                start = max([free[stage], *(ends[need] for need in waits)])
                free[stage] = start + sum(seconds[kind] for kind, _, _ in parts)
                ends |= dict.fromkeys(own, free[stage])
                at[stage], left = at[stage] + 1, left - 1
        assert left < before, "stages wait for each other"
    return max(free)


def most_in_flight(order: Order) -> int:
    """Most chunks of micro-batches that were begun and whose weight gradients are not done."""
    live, most = set[tuple[int, int]](), 0
    for parts in order:
        live |= {part[1:] for part in parts if part[0] == "F"}
        most = max(most, len(live))
        live -= {part[1:] for part in parts if part[0] == "W"}
    return most


def in_line(stages: int) -> Needs:
    """One chunk a stage: forward down the line, gradients up."""

    def needs(stage: int, part: Part) -> list[tuple[int, Part]]:
        kind, batch, chunk = part
        if kind == "F":
            return [(stage - 1, part)] if stage else []
        if kind == "B":
            return [(stage, ("F", batch, chunk)), *([(stage + 1, part)] if stage < stages - 1 else [])]
        return [(stage, ("B", batch, chunk))]

    return needs


def one_f_one_b(stages: int, batches: int) -> list[Order]:
    """PipeDream-flush; both gradients at once."""
    orders: list[Order] = []
    for stage in range(stages):
        warm = min(stages - stage - 1, batches)
        order: Order = [(("F", number, 0),) for number in range(warm)]
        for number in range(batches):
            order += [(("F", warm + number, 0),)] if warm + number < batches else []
            order += [(("B", number, 0), ("W", number, 0))]
        orders.append(order)
    return orders


def zb_h1(stages: int, batches: int) -> list[Order]:
    """1F1B whose stage i does weight gradients i micro-batches after input gradients."""
    orders: list[Order] = []
    for stage in range(stages):
        begun = min(stages - stage, batches)
        order: Order = [(("F", number, 0),) for number in range(begun)]
        weighed = 0
        for number in range(batches):
            order.append((("B", number, 0),))
            if number + 1 - weighed > stage:
                order.append((("W", weighed, 0),))
                weighed += 1
            if begun < batches:
                order.append((("F", begun, 0),))
                begun += 1
        orders.append(order + [(("W", number, 0),) for number in range(weighed, batches)])
    return orders


def in_v(stages: int) -> Needs:
    """Two chunks a device: the first down the line, the second back up."""

    def needs(stage: int, part: Part) -> list[tuple[int, Part]]:
        kind, batch, chunk = part
        if kind == "W":
            return [(stage, ("B", batch, chunk))]
        if kind == "F":
            if chunk == 0:
                return [(stage - 1, part)] if stage else []
            return [(stage + 1, part)] if stage < stages - 1 else [(stage, ("F", batch, 0))]
        own: list[tuple[int, Part]] = [(stage, ("F", batch, chunk))]
        if chunk == 1:
            return own + ([(stage - 1, part)] if stage else [])
        return own + ([(stage + 1, part)] if stage < stages - 1 else [(stage, ("B", batch, 1))])

    return needs


def zb_v(stages: int, batches: int) -> list[Order]:
    """As `ScheduleZBVZeroBubble` of torch.distributed.pipelining lists them."""
    orders: list[Order] = []
    for rank in range(stages):
        order: Order = []
        done = {(kind, chunk): 0 for kind in "FBW" for chunk in (0, 1)}

        def add(kind: str, chunk: int, done=done, order=order) -> None:
            order.append(((kind, done[kind, chunk], chunk),))
            done[kind, chunk] += 1

        def both(chunk: int, add=add) -> None:
            add("B", chunk)
            add("W", chunk)

        for _ in range(2 * (stages - rank) - 1):
            add("F", 0)
        for _ in range(rank):
            add("F", 1)
            add("F", 0)
        for _ in range(stages - rank):
            add("F", 1)
            both(1)
        while done["F", 1] < done["F", 0] or done["F", 0] < batches:
            if done["F", 0] < batches:
                add("F", 0)
            both(0)
            add("F", 1)
            both(1)
        for _ in range(rank):
            add("B", 0)
            add("B", 1)
        for _ in range(stages - rank):
            add("B", 0)
            add("W", 0)
        for chunk in (1, 0):
            while done["W", chunk] < done["B", chunk]:
                add("W", chunk)
        orders.append(order)
    return orders


def both_ways(stages: int) -> Needs:
    """Chunk 0 goes down the line, chunk 1 up: each device holds a stage of both."""

    def needs(stage: int, part: Part) -> list[tuple[int, Part]]:
        kind, batch, chunk = part
        before, after = (stage - 1, stage + 1) if chunk == 0 else (stage + 1, stage - 1)
        if kind == "F":
            return [(before, part)] if 0 <= before < stages else []
        if kind == "B":
            return [(stage, ("F", batch, chunk)), *([(after, part)] if 0 <= after < stages else [])]
        return [(stage, ("B", batch, chunk))]

    return needs


def dual_pipe(stages: int, batches: int) -> list[Order]:
    """The eight parts of DualPipe's published `step`; a forward beside a backward pass is one operation."""
    orders: list[Order] = []
    half = stages // 2
    for rank in range(stages):
        inner, second, middle = min(rank, stages - 1 - rank), rank >= half, rank in (half - 1, half)
        order: Order = []
        begun, done, later = [0, 0], [0, 0], list[Part]()

        def forward(phase: int, begun=begun, second=second) -> Part:
            begun[phase] += 1
            return ("F", begun[phase] - 1, phase ^ second)

        def backward(phase: int, done=done, second=second) -> tuple[Part, Part]:
            done[phase] += 1
            return ("B", done[phase] - 1, phase ^ second), ("W", done[phase] - 1, phase ^ second)

        order += [(forward(0),) for _ in range(2 * (half - inner - 1))]
        for _ in range(inner + 1):
            order += [(forward(0),), (forward(1),)]
        for _ in range(half - inner - 1):
            inputs, weights = backward(1)
            order += [(inputs,), (weights,), (forward(1),)]
        for number in range(batches // 2 - stages + inner + 1):
            if number == 0 and middle:
                order += [(forward(0),), backward(1)]
            else:
                order.append((forward(0), *backward(1)))
            order.append((forward(1), *backward(0)))
        for _ in range(half - inner - 1):
            order += [backward(1), (forward(1), *backward(0))]
        apart = False
        for number in range(inner + 1):
            for phase, odd in ((1, 1), (0, 0)):
                apart = apart or (number == (inner + 1) // 2 and inner % 2 == 1 and odd == 1)
                inputs, weights = backward(phase)
                order.append((inputs,) if apart else (inputs, weights))
                later += [weights] if apart else []
                apart = apart or (number == (inner + 1) // 2 and inner % 2 == 0 and odd == 1)
        for _ in range(half - inner - 1):
            order.append((later.pop(0),))
            inputs, weights = backward(0)
            order.append((inputs,))
            later.append(weights)
        orders.append(order + [(weights,) for weights in later])
    return orders
