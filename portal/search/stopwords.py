"""English words that say nothing about what a function does."""

STOPWORDS = frozenset(
    """
    a about above after again all also am an and any are aren as at be because been before being below
    between both but by can could couldn did didn do does doesn doing don down during each few for from
    further had has have having he her here hers him his how i if in into is isn it its itself just me
    more most my myself no nor not now of off on once only or other our ours out over own please same
    she should so some such than that the their theirs them then there these they this those through to
    too under until up very was wasn we were what when where which while who whom why will with won
    would wouldn you your yours
    """.split()  # noqa: SIM905
)

ASKING = frozenset(
    """
    able give hello help hey hi im interested kindly know let like look looking may might need show sure
    tell thank thanks us use using want way wondering
    """.split()  # noqa: SIM905
)
"""Words of the asking, not of what is asked for. Kept in descriptions: "show" is a good name for a tool."""
