"""The suite `literature`: 62 small problems of papers from 1978 to 2017.

They are collected in S. Zhou, A. B. Zemkoho and A. Tin, "BOLIB: Bilevel optimization library of
test problems", in: Bilevel Optimization, Springer, 2020; each is named after its paper. Where a
paper leaves a variable without a bound, the suite has a wide one. Some optima that the collection
prints are wrong (see docs/errata.md). The optima here are exact, or solve the optimality conditions
of the follower's problem to rounding; a multi-start confirmed each follower's answer.

`CLASSES` gives the class of each problem, the first of these that holds:

- ties: at the known optimum, the follower has other best answers, with another F.
- nonconvex: f or a constraint of g is not convex in y, for some x of the box.
- linear: f and g are linear in y.
- coupled: f and g are convex in y, and constraints of G contain y.
- convex: f and g are convex in y, and G, if there is any, contains x only.

The classes follow from the formulas, by hand; the tests check them at random points.
"""

from __future__ import annotations

from bilevo.core.problem import Problem

__all__ = ["CLASSES", "make"]

CLASSES = {
    "aiyoshishimizu1984ex2": "coupled",
    "anetal2009": "nonconvex",
    "bard1988ex2": "convex",
    "bard1991ex1": "ties",
    "calamaivicente1994a": "linear",
    "calamaivicente1994c": "convex",
    "clarkwesterberg1990a": "convex",
    "colson2002bipa2": "convex",
    "colson2002bipa4": "coupled",
    "desilva1978": "convex",
    "dempe1992b": "convex",
    "dempedutta2012ex31": "coupled",
    "dempefranke2011ex41": "ties",
    "dempefranke2014ex38": "linear",
    "dempelohse2011ex31b": "ties",
    "floudasetal2013": "convex",
    "gumusfloudas2001ex1": "coupled",
    "gumusfloudas2001ex4": "coupled",
    "hatzetal2013": "convex",
    "henrionsurowiec2011": "convex",
    "kleniatiadjiman2014ex3": "ties",
    "lampariellosagratella2017ex23": "nonconvex",
    "lampariellosagratella2017ex32": "convex",
    "lampariellosagratella2017ex35": "linear",
    "ludebsinha2016b": "nonconvex",
    "ludebsinha2016d": "nonconvex",
    "ludebsinha2016f": "coupled",
    "macalhurter1997": "convex",
    "mitsosbarton2006ex310": "nonconvex",
    "mitsosbarton2006ex312": "nonconvex",
    "mitsosbarton2006ex314": "ties",
    "mitsosbarton2006ex316": "nonconvex",
    "mitsosbarton2006ex318": "nonconvex",
    "mitsosbarton2006ex320": "ties",
    "mitsosbarton2006ex322": "nonconvex",
    "mitsosbarton2006ex324": "ties",
    "mitsosbarton2006ex326": "ties",
    "mitsosbarton2006ex328": "ties",
    "mitsosbarton2006ex39": "nonconvex",
    "morganpatrone2006b": "ties",
    "muuquy2003ex1": "convex",
    "niewangye2017ex34": "nonconvex",
    "niewangye2017ex54": "coupled",
    "niewangye2017ex58": "nonconvex",
    "outrata1990ex1a": "convex",
    "outrata1990ex1c": "convex",
    "outrata1990ex1e": "convex",
    "outrata1990ex2b": "convex",
    "outrata1990ex2d": "convex",
    "outrata1993ex31": "convex",
    "outrata1994ex31": "convex",
    "paulaviciusadjiman2017a": "ties",
    "sahinciric1998ex2": "convex",
    "shimizuaiyoshi1981ex2": "convex",
    "shimizuetal1997b": "coupled",
    "sinhamalodeb2014tp3": "convex",
    "sinhamalodeb2014tp7": "nonconvex",
    "sinhamalodeb2014tp9": "nonconvex",
    "vogel2012": "ties",
    "yezhu2010ex42": "nonconvex",
    "yezza1996ex31": "ties",
    "zlobec2001a": "linear",
}


def make(name: str) -> Problem:
    """Make a problem of the suite. Its formulas are loaded now, because few users need them."""
    if name[0] <= "g":
        from bilevo.problems.literature.a_to_g import A_TO_G

        return A_TO_G[name].problem(name)
    if name[0] <= "m":
        from bilevo.problems.literature.h_to_m import H_TO_M

        return H_TO_M[name].problem(name)
    from bilevo.problems.literature.n_to_z import N_TO_Z

    return N_TO_Z[name].problem(name)
