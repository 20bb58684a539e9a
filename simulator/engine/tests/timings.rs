//! The presets against the measurements they were fitted to.

use std::path::PathBuf;

use isotherm_engine::fit::{Batch, fits, simulate};
use isotherm_engine::model::Preset;

/// The error that the presets may have, on average over the set-ups of one file.
const ERROR_MAX: f64 = 0.10;

#[test]
fn the_presets_reproduce_the_measurements() -> Result<(), String> {
    let Some(data) = std::env::var_os("ISOTHERM_DATA") else {
        println!(
            "skipped: the measurements are not part of the project; ISOTHERM_DATA names where they are"
        );
        return Ok(());
    };
    let directory = PathBuf::from(data).join("engine-timings");
    let fits = fits(&directory)?;
    assert_eq!(fits.len(), Preset::ALL.len() - 1);
    for fit in fits {
        println!("{fit}");
        assert!(fit.setups > 10, "{fit}");
        assert!(fit.prefill.mean < ERROR_MAX, "{fit}");
        assert!(fit.decode.mean < ERROR_MAX, "{fit}");
    }
    Ok(())
}

#[test]
fn the_l4_preset_is_the_replica_of_skylb() {
    let batch = Batch {
        prompt_tokens: 512,
        sequences: 1,
        output_tokens: 2,
    };
    let run = simulate(Preset::Llama31_8bL4, batch);
    assert!(
        (run.first_first_s - 0.3).abs() < 0.01,
        "512 tokens take about 300 ms (section 2.1), not {}",
        run.first_first_s
    );
    let config = Preset::Llama31_8bL4.config();
    let requests = |tokens| config.blocks * config.block_tokens / tokens;
    assert!(
        requests(1_700) >= 19 && requests(650) <= 53,
        "20 to 50 chats fit the cache (section 3.3)"
    );
}
