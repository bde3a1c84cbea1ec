//! pmu
