"""The interval of a share that a simulation found."""


def clopper_pearson(x: float, n: float, confidence: float) -> tuple[float, float]:
    """The interval for x in n independent trials. It covers at least as often as stated (Clopper
    and Pearson, Biometrika 26, 1934). x and n need not be whole numbers."""
    from scipy.special import betaincinv

    tail = (1 - confidence) / 2
    low = 0.0 if x <= 0 else float(betaincinv(x, n - x + 1, tail))
    high = 1.0 if x >= n else float(betaincinv(x + 1, n - x, 1 - tail))
    return low, high
