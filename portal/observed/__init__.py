"""What results of tools look like that declare nothing: learnt from real ones, as shapes without values."""
