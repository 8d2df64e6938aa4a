"""The tail of a distribution, in the text of summary."""


from written_sessions import PIPES, SOAK, answer

# In steps of 26 ticks, which are 10 ns.
HELD = [26 * (1000 + i) for i in range(50_000)]


def test_tail_has_the_value_that_one_sample_in_10_100_and_so_on_exceeds(writer, klat):
    writer.run({"m": HELD[:25_000]}, run=1)
    writer.run({"m": HELD[25_000:]}, run=2)
    status, out, _ = klat("summary", "--tail", writer.path)
    lines = out.splitlines()
    (place,) = (i for i, line in enumerate(lines) if line.lstrip().startswith("tail ["))
    assert status == 0
    assert lines[place].split() == ["tail", "[ns]", "1/10", "1/100", "1/1,000", "1/10^4", "max"]
    assert lines[place + 2].split() == ["m", "459,990", "504,990", "509,490", "509,940", "509,990"]


def test_without_tail_only_a_soak_shows_its_tail(new_session, klat):
    for name, params in (("a", PIPES), ("b", SOAK)):
        session = new_session(f"{name}/1", label=name)
        session.run({"m": HELD}, params=params)
        assert ("tail [ns]" in klat("summary", session.path)[1]) == (params == SOAK)


def test_a_metric_with_fewer_samples_has_fewer_figures(writer, klat):
    writer.run({"many": HELD}, run=1)
    writer.run({"few": HELD[:500]}, run=2, benchmark="cv")
    writer.run({"none": HELD[:9]}, run=3, benchmark="timer")
    out = klat("summary", "--tail", writer.path)[1]
    rows = {line.split()[0]: line.split()[1:] for line in out.splitlines() if line.strip()}
    assert len(rows["many"]) == 5
    assert rows["few"] == ["14,490", "14,940", "14,990"]
    assert rows["none"] == ["10,080"]


def test_a_tail_that_is_too_wide_is_several_tables(writer, klat):
    long = "a_metric_with_a_name_of_thirty"
    writer.run({long: [2**52 + i for i in HELD]}, run=1)
    out = klat("summary", "--tail", writer.path)[1]
    headers = [line.split()[2:] for line in out.splitlines() if line.strip().startswith("tail [")]
    assert len(headers) > 1 and sum(headers, [])[-2:] == ["1/10^4", "max"]
    assert max(len(line) for line in out[out.index("tail [") :].splitlines()) <= 80


def test_the_tail_for_programs_has_shares_and_samples(writer, klat):
    writer.run({"m": HELD[:500]})
    document = answer(klat, "summary", writer.path)
    metric = document["labels"][0]["settings"][0]["metrics"][0]
    assert metric["tail"] == [[0.1, HELD[449]], [0.01, HELD[494]]]
