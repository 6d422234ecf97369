"""Names that classes and fields of stored states had in earlier versions.

Snapshots name their classes. A class that is moved or renamed gets a line here, so that files of
earlier versions can be read.
"""

ALGORITHMS = "bilevo.algorithms"
EXPERIENCE = f"{ALGORITHMS}.drc_plus.experience.Experience"
CLASSES = {
    f"{ALGORITHMS}.bleaq2.Population": f"{ALGORITHMS}.rivals.bleaq2.BLEAQ2Leaders",
    f"{ALGORITHMS}.descents.Descent": f"{ALGORITHMS}.drc_race.descents.Descent",
    f"{ALGORITHMS}.drc_plus.DRCPlusState": f"{ALGORITHMS}.drc_plus.state.DRCPlusState",
    f"{ALGORITHMS}.drc_plus.Search": f"{ALGORITHMS}.drc_plus.state.LeaderSearch",
    f"{ALGORITHMS}.drc_plus.State": f"{ALGORITHMS}.drc_plus.state.DRCPlusState",
    f"{ALGORITHMS}.drc_race.DRCRaceState": f"{ALGORITHMS}.drc_race.method.DRCRaceState",
    f"{ALGORITHMS}.drc_race.State": f"{ALGORITHMS}.drc_race.method.DRCRaceState",
    f"{ALGORITHMS}.drc_race.Task": f"{ALGORITHMS}.drc_race.method.RaceTask",
    f"{ALGORITHMS}.few.method.FewState": f"{ALGORITHMS}.few.state.FewState",
    f"{ALGORITHMS}.follower.OwnFollower": f"{ALGORITHMS}.shared.follower_search.SolverSearch",
    f"{ALGORITHMS}.follower.Pair": f"{ALGORITHMS}.shared.follower_search.Pair",
    f"{ALGORITHMS}.genetic.Leaders": f"{ALGORITHMS}.rivals.genetic.Leaders",
    f"{ALGORITHMS}.go_cma_es.Context": f"{ALGORITHMS}.rivals.go_cma_es.Context",
    f"{ALGORITHMS}.go_cma_es.GOState": f"{ALGORITHMS}.rivals.go_cma_es.GOState",
    f"{ALGORITHMS}.go_cma_es.State": f"{ALGORITHMS}.rivals.go_cma_es.GOState",
    f"{ALGORITHMS}.grouping.Group": f"{ALGORITHMS}.rivals.grouping.Group",
    f"{ALGORITHMS}.leader.LeaderState": f"{ALGORITHMS}.shared.leader.LeaderState",
    f"{ALGORITHMS}.leader.State": f"{ALGORITHMS}.shared.leader.LeaderState",
    f"{ALGORITHMS}.mfbla.MFBLAState": f"{ALGORITHMS}.rivals.mfbla.MFBLAState",
    f"{ALGORITHMS}.mfbla.State": f"{ALGORITHMS}.rivals.mfbla.MFBLAState",
    f"{ALGORITHMS}.rivals.bleaq2.Population": f"{ALGORITHMS}.rivals.bleaq2.BLEAQ2Leaders",
    f"{ALGORITHMS}.sa_bl_imode.SABLIMODEState": f"{ALGORITHMS}.rivals.sa_bl_imode.SABLIMODEState",
    f"{ALGORITHMS}.sa_bl_imode.State": f"{ALGORITHMS}.rivals.sa_bl_imode.SABLIMODEState",
    f"{ALGORITHMS}.drc_plus.warm_follower.Experience": EXPERIENCE,
    f"{ALGORITHMS}.warm_follower.Experience": EXPERIENCE,
    "bilevo.followers.minimise.State": "bilevo.followers.minimize.MinimizeState",
    "bilevo.followers.population.State": "bilevo.followers.population.PopulationState",
    "bilevo.optimizers.cma_es.State": "bilevo.optimizers.cma_es.CMAState",
    "bilevo.optimizers.de.State": "bilevo.optimizers.de.DEState",
    "bilevo.optimizers.imode.State": "bilevo.optimizers.imode.IMODEState",
    "bilevo.optimizers.pso.State": "bilevo.optimizers.pso.PSOState",
    "bilevo.surrogates.archive.Archive": f"{ALGORITHMS}.rivals.archive.Archive",
}
FIELDS = {  # for each class: the old names of its fields, and the new ones
    f"{ALGORITHMS}.shared.follower_search.Pair": {"turns": "steps"},
    f"{ALGORITHMS}.drc_plus.state.DRCPlusState": {
        "milestone": "restart_elite",
        "certified_elite": "checked_elite",
        "proven": "checked_elite",
        "rough": "fallback",
    },
}
DROPPED = {  # for each class: fields of earlier versions that it no longer has
    f"{ALGORITHMS}.drc_plus.leader_view.Unfelt": {"searched"},
}
