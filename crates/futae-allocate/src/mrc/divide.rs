//! The best division of cells among guests.

/// How many cells each guest gets, together at most `cells`, so that the sum of costs is least:
/// `costs[guest][n]` is the cost of `n` cells. Every guest has a cost for no cells at least. Curves
/// may have any shape. Takes time in guests × cells².
pub fn divide(costs: &[Vec<f64>], cells: usize) -> Vec<usize> {
    // best[n]: the least cost of the guests so far with n cells at most.
    let mut best = vec![0.0; cells + 1];
    let mut chosen: Vec<Vec<u32>> = Vec::with_capacity(costs.len());
    for costs in costs {
        let mut next = vec![f64::INFINITY; cells + 1];
        let mut choice = vec![0u32; cells + 1];
        for (all, (cost, chosen)) in next.iter_mut().zip(&mut choice).enumerate() {
            for (own, own_cost) in costs.iter().enumerate().take(all + 1) {
                let sum = best[all - own] + own_cost;
                if sum < *cost {
                    *cost = sum;
                    *chosen = own as u32;
                }
            }
        }
        best = next;
        chosen.push(choice);
    }
    let mut left = cells;
    let mut shares = vec![0; costs.len()];
    for (share, choice) in shares.iter_mut().zip(&chosen).rev() {
        *share = choice[left] as usize;
        left -= *share;
    }
    shares
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All divisions, tried one by one.
    fn least(costs: &[Vec<f64>], cells: usize) -> f64 {
        let Some((first, rest)) = costs.split_first() else {
            return 0.0;
        };
        let with = |own: usize| first[own] + least(rest, cells - own);
        let options = 0..first.len().min(cells + 1);
        options.map(with).fold(f64::INFINITY, f64::min)
    }

    proptest! {
        #[test]
        fn no_division_is_better(
            costs in prop::collection::vec(prop::collection::vec(0u8..50, 1..7), 1..5),
            cells in 0usize..12,
        ) {
            let costs: Vec<Vec<f64>> = costs
                .iter()
                .map(|costs| costs.iter().copied().map(f64::from).collect())
                .collect();
            let shares = divide(&costs, cells);
            prop_assert!(shares.iter().sum::<usize>() <= cells);
            let cost: f64 = shares.iter().zip(&costs).map(|(&share, costs)| costs[share]).sum();
            prop_assert_eq!(cost, least(&costs, cells));
        }
    }

    #[test]
    fn a_cliff_is_worth_what_lies_before_it() {
        // A loop that hits only with 3 cells, and a guest that gains a little with each.
        let costs = [vec![9.0, 9.0, 9.0, 0.0], vec![4.0, 3.0, 2.0, 1.0]];
        assert_eq!(divide(&costs, 3), [3, 0]);
        assert_eq!(divide(&costs, 2), [0, 2]);
    }
}
