"""Helpers that several tests share. No test lives here."""
