"""Does docs_search find the right function among thousands, and how fast?"""
