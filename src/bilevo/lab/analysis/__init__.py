"""From stored runs to samples, statistics, tables and curves: values, not text."""
