"""Results that declare nothing, and what is learnt of them."""
