"""The text model of `dissatisfied_followup`: readable features, n-grams, learnt weights, calibration."""
