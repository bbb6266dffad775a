"""Two switches as one LACP system (MLAG), as SONiC's iccpd makes them: what they tell each other, and what follows."""
