//! Normal equations of a regression with a few columns, and their solution.

#![expect(
    clippy::indexing_slicing,
    reason = "every index runs over the fixed size of the arrays"
)]

/// Normal equations `A x = b` of a least-squares problem with `N` columns.
#[derive(Clone, Debug)]
pub(super) struct Normal<const N: usize> {
    matrix: [[f64; N]; N],
    right: [f64; N],
}

impl<const N: usize> Default for Normal<N> {
    fn default() -> Self {
        Self {
            matrix: [[0.0; N]; N],
            right: [0.0; N],
        }
    }
}

impl<const N: usize> Normal<N> {
    /// Adds one observation.
    pub(super) fn add(&mut self, columns: &[f64; N], value: f64) {
        for row in 0..N {
            for column in 0..N {
                self.matrix[row][column] += columns[row] * columns[column];
            }
            self.right[row] += columns[row] * value;
        }
    }

    /// Equations with a constant on the diagonal, so that collinear columns have a solution.
    pub(super) fn with_ridge(mut self, ridge: f64) -> Self {
        for row in 0..N {
            self.matrix[row][row] += ridge;
        }
        self
    }

    /// Equations with a diagonal that is larger by a factor, as Marquardt damps a step.
    pub(super) fn with_damping(mut self, damping: f64) -> Self {
        for row in 0..N {
            self.matrix[row][row] = self.matrix[row][row].mul_add(1.0 + damping, 1e-12);
        }
        self
    }
}

/// Solution by Gauss's elimination with partial pivoting; `None` if the matrix is singular.
pub(super) fn solve<const N: usize>(normal: Normal<N>) -> Option<[f64; N]> {
    let Normal {
        mut matrix,
        mut right,
    } = normal;
    for column in 0..N {
        let pivot = (column..N).max_by(|one, two| {
            let size = |row: usize| matrix[row][column].abs();
            size(*one).total_cmp(&size(*two))
        })?;
        matrix.swap(column, pivot);
        right.swap(column, pivot);
        let diagonal = matrix[column][column];
        if !diagonal.is_finite() || diagonal.abs() < 1e-300 {
            return None;
        }
        for row in column + 1..N {
            let factor = matrix[row][column] / diagonal;
            let upper = matrix[column];
            for (value, pivot) in matrix[row].iter_mut().zip(upper) {
                *value -= factor * pivot;
            }
            right[row] -= factor * right[column];
        }
    }
    let mut solution = [0.0; N];
    for row in (0..N).rev() {
        let known: f64 = (row + 1..N).map(|at| matrix[row][at] * solution[at]).sum();
        solution[row] = (right[row] - known) / matrix[row][row];
    }
    solution
        .iter()
        .all(|value| value.is_finite())
        .then_some(solution)
}
