//! Hit ratios in closed form (SPEC 1.3): what a simulation is held against.
