"""Tests of the window. A package, so that its conftest is another module than the one above."""
