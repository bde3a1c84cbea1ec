//! Merging, task and mapping state, call graphs, histograms.
