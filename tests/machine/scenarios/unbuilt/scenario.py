"""A scenario whose lab cannot be built: the last thing that is done for it fails."""

from testbed import Scenario, Variant


class Unbuilt(Scenario):
    """A lab that cannot be built. Never runs."""

    variants = Variant("only", "healthy", ""), Variant("other", "healthy", "the same lab")

    def run(self, run, parameters):
        run.observe("healthy", "nothing is wrong")
