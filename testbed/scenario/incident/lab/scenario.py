from testbed.scenario.incident.incident import Incidents


class Incident(Incidents):
    """An incident: something is wrong in a cluster, and a ticket says what its users see."""
