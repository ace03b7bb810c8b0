"""Scaling studies: their runs, points, forecasts and reports."""
