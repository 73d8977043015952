"""Which branches are cold."""

from __future__ import annotations

from .reading import body, read


def cold(source: str) -> list[bool]:
    return [e.scene.cold for e in read(source).events if e.event == "call" and e.name == "show"]


def test_what_a_file_tries_itself_is_cold() -> None:
    statements = "if __name__ == '__main__':\n    show(x)\nshow(x)\n"
    assert cold(body(statements)) == [True, False]


def test_error_paths_and_once_only_guards_are_cold() -> None:
    source = """
    class Layer(nn.Module):
        def forward(self, x: Tensor):
            show(1)
            if x.dim() != 2:
                raise ValueError(show(2))
            if self._table is None:
                self._table = show(3)
            if "a" not in self._cache:
                self._cache["a"] = show(4)
            if torch.jit.is_scripting():
                show(5)
            assert x.dim(), show(6)
            try:
                show(7)
            except RuntimeError:
                show(8)
            if x.dim():
                logger.warning("no")
                return show(9)
            if self._y is not None:
                y = show(10)
            else:
                y = self._y = show(11)
            if torch.cuda.is_current_stream_capturing():
                show(12)
            if self.built:
                return show(13)
            return show(14)
    """
    hot = [1, 7, 10, 13]
    assert cold(source) == [number not in hot for number in range(1, 15)]


def test_what_was_looked_up_and_is_put_there_is_made_rarely() -> None:
    source = body(
        """
        a = plans.get(x)
        if a is None:
            a = plans[x] = show(1)
        b = self.plans[x]
        if b is None:
            self.plans[x] = show(2)
        own = {}
        c = own.get(x)
        if c is None:
            own[x] = show(3)
        d = y.get(x)
        if d is None:
            y[x] = show(4)
        e = plans.get(x)
        if e is None:
            others[x] = show(5)
        f = plans.get(x)
        if f is not None:
            f = show(6)
            return f
        f = plans[x] = show(7)
        return f
        """,
        "self, x, y",
    )
    rare = [1, 2, 7]
    assert cold(source) == [number in rare for number in range(1, 8)]


def test_what_each_branch_fills_or_only_a_failure_goes_on_to_is_rare() -> None:
    source = body(
        """
        if x:
            g = plans.get(1)
        else:
            g = plans.get(2)
        if g is None:
            plans[1] = show(1)
        if x.legacy_mask is not None:
            warnings.warn("old")
            y = show(2)
        if x.legacy_mask is not None:
            y = show(3)
        if x not in _PLANS:
            if y:
                _PLANS[x] = show(4)
            else:
                _PLANS[x] = show(5)
        if x.deprecated:
            warnings.warn("old")
            y = show(9)
        if x:
            h = None
        else:
            h = plans.get(x)
        if h is None:
            plans[x] = show(10)
        def within(k):
            m = plans.get(k)
        if m is None:
            plans[x] = show(11)
        if y not in others:
            if y:
                others[y] = 1
            show(6)
        try:
            if y:
                return plans[x]
            else:
                return plans[y]
        except KeyError:
            show(7)
        show(8)
        """,
        "self, x, y",
    )
    hot = [3, 6, 10, 11]
    order = [1, 2, 3, 4, 5, 9, 10, 11, 6, 7, 8]
    assert cold(source) == [number not in hot for number in order]


def test_what_is_looked_up_elsewhere_or_kept_for_the_call_is_not_rare() -> None:
    source = body(
        """
        own = {}
        if x:
            g = plans.get(1)
        else:
            g = others.get(1)
        if g is None:
            plans[1] = show(1)
        h = self.get(x)
        if h is None:
            self[x] = show(2)
        m = own.get(x)
        if m is None:
            own[x] = show(3)
        if self.last is not None:
            self.last = show(4)
        else:
            show(5)
        if x:
            logger.warning_once("slow")
            return show(6)
        return f
        """,
        "self, x, y",
    )
    assert not any(cold(source))


def test_a_local_name_is_no_once_only_guard() -> None:
    source = body(
        """
        if mask is None:
            mask = show(1)
        return mask
        """,
        "x, mask=None",
    )
    assert cold(source) == [False]


def test_what_ends_the_program_is_an_error_path() -> None:
    source = body(
        """
        if x.dim() > 1:
            show(1)
            exit(1)
        if x.dim() > 2:
            show(2)
            assert False, "no"
        if x.dim() > 3:
            show(3)
            sys.exit("no")
        if x.dim() > 4:
            show(4)
            assert x.dim() > 3
        if x.dim() > 5:
            show(5)
            exit_loop(1)
        if x.dim() > 6:
            show(6)
            assert 0 < x.dim()
        """
    )
    assert cold(source) == [True, True, True, False, False, False]


def test_what_leads_to_a_raise_at_the_end_is_an_error_path() -> None:
    source = body(
        """
        show(1)
        if x.dim() > 1:
            show(2)
            return x
        show(3)
        for row in x:
            show(4)
        raise ValueError
        """
    )
    assert cold(source) == [False, False, True, True]
