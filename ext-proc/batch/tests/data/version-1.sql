-- A queue as the program of version 1 left it: batches in each state, and requests in each state. BLOB stands for the type of bytes.
CREATE TABLE isotherm_schema (version BIGINT NOT NULL);
CREATE TABLE isotherm_files (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, purpose TEXT NOT NULL, name TEXT NOT NULL, status TEXT NOT NULL,
    bytes BIGINT NOT NULL, lines BIGINT NOT NULL, created_at BIGINT NOT NULL, expires_at BIGINT,
    batch_id TEXT, is_success BIGINT);
CREATE INDEX isotherm_files_batch ON isotherm_files (batch_id);
CREATE TABLE isotherm_file_lines (
    file_id TEXT NOT NULL, number BIGINT NOT NULL, content BLOB NOT NULL, PRIMARY KEY (file_id, number));
CREATE TABLE isotherm_batches (
    id TEXT PRIMARY KEY, owner TEXT NOT NULL, endpoint TEXT NOT NULL, model TEXT NOT NULL, status TEXT NOT NULL,
    input_file_id TEXT NOT NULL, output_file_id TEXT, error_file_id TEXT, window_s BIGINT NOT NULL,
    created_at BIGINT NOT NULL, in_progress_at BIGINT, expires_at BIGINT NOT NULL, finalizing_at BIGINT,
    completed_at BIGINT, failed_at BIGINT, expired_at BIGINT, cancelling_at BIGINT, cancelled_at BIGINT,
    total BIGINT NOT NULL, completed BIGINT NOT NULL, failed BIGINT NOT NULL, unfinished BIGINT NOT NULL,
    errors TEXT, metadata TEXT, output_ttl_s BIGINT, output_path TEXT, is_delivered BIGINT NOT NULL,
    steward TEXT, steward_until BIGINT NOT NULL);
CREATE INDEX isotherm_batches_status ON isotherm_batches (status, expires_at);
CREATE INDEX isotherm_batches_owner ON isotherm_batches (owner, created_at, id);
CREATE TABLE isotherm_requests (
    batch_id TEXT NOT NULL, number BIGINT NOT NULL, custom_id TEXT NOT NULL, ready_at BIGINT NOT NULL,
    worker TEXT, is_promoted BIGINT NOT NULL, failures BIGINT NOT NULL, outages BIGINT NOT NULL,
    done_at BIGINT, is_success BIGINT, result BLOB, PRIMARY KEY (batch_id, number));
CREATE INDEX isotherm_requests_open ON isotherm_requests (batch_id, number) WHERE done_at IS NULL;
CREATE TABLE isotherm_workers (
    worker TEXT NOT NULL, model TEXT NOT NULL, spare_milli_per_s BIGINT, seen_at BIGINT NOT NULL,
    PRIMARY KEY (worker, model));
INSERT INTO isotherm_schema VALUES (1);

-- One input of six requests, which every batch reads.
INSERT INTO isotherm_files VALUES ('file-in', 'o', 'batch', 'in.jsonl', 'processed', 612, 6, 1767225600000, NULL, NULL, NULL);
INSERT INTO isotherm_file_lines VALUES
    ('file-in', 1, CAST('{"custom_id":"c1","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB)),
    ('file-in', 2, CAST('{"custom_id":"c2","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB)),
    ('file-in', 3, CAST('{"custom_id":"c3","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB)),
    ('file-in', 4, CAST('{"custom_id":"c4","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB)),
    ('file-in', 5, CAST('{"custom_id":"c5","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB)),
    ('file-in', 6, CAST('{"custom_id":"c6","method":"POST","url":"/v1/completions","body":{"model":"m","prompt":"p","n":1}}
' AS BLOB));

-- The deadline of the open batches is in the year 2100.
INSERT INTO isotherm_batches (id, owner, endpoint, model, status, input_file_id, window_s, created_at, in_progress_at, expires_at,
    finalizing_at, completed_at, failed_at, expired_at, cancelling_at, cancelled_at, output_file_id,
    total, completed, failed, unfinished, errors, is_delivered, steward_until) VALUES
    ('batch_validating', 'o', '/v1/completions', '', 'validating', 'file-in', 86400, 1767225600000, NULL, 4102444800000,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, 0, 0, 0, 0, NULL, 0, 0),
    ('batch_in_progress', 'o', '/v1/completions', 'm', 'in_progress', 'file-in', 86400, 1767225600000, 1767225601000, 4102444800000,
        NULL, NULL, NULL, NULL, NULL, NULL, NULL, 6, 1, 1, 0, NULL, 0, 0),
    ('batch_finalizing', 'o', '/v1/completions', 'm', 'finalizing', 'file-in', 86400, 1767225600000, 1767225601000, 1767312000000,
        1767312000000, NULL, NULL, 1767312000000, NULL, NULL, NULL, 2, 1, 0, 0, NULL, 0, 0),
    ('batch_cancelling', 'o', '/v1/completions', 'm', 'cancelling', 'file-in', 86400, 1767225600000, 1767225601000, 4102444800000,
        NULL, NULL, NULL, NULL, 1767225602000, NULL, NULL, 2, 0, 0, 0, NULL, 0, 0),
    ('batch_completed', 'o', '/v1/completions', 'm', 'completed', 'file-in', 86400, 1767225600000, 1767225601000, 4102444800000,
        1767225602000, 1767225603000, NULL, NULL, NULL, NULL, 'file-out', 1, 1, 0, 0, NULL, 0, 0),
    ('batch_failed', 'o', '/v1/completions', '', 'failed', 'file-in', 86400, 1767225600000, NULL, 4102444800000,
        NULL, NULL, 1767225601000, NULL, NULL, NULL, NULL, 0, 0, 0, 0, '{"object":"list","data":[]}', 0, 0);
INSERT INTO isotherm_files VALUES
    ('file-out', 'o', 'batch_output', 'batch_completed_output.jsonl', 'processed', 19, 1, 1767225603000, NULL, 'batch_completed', 1);
INSERT INTO isotherm_requests VALUES
    -- Added by a validation that did not end.
    ('batch_validating', 1, 'c1', 0, NULL, 0, 0, 0, NULL, NULL, NULL),
    -- Free, leased by a worker that is gone, leased far ahead by a clock that was wrong, waiting for another attempt.
    ('batch_in_progress', 1, 'c1', 0, NULL, 0, 0, 0, NULL, NULL, NULL),
    ('batch_in_progress', 2, 'c2', 1767225601000, 'worker-gone', 1, 0, 0, NULL, NULL, NULL),
    ('batch_in_progress', 3, 'c3', 4102444800000, 'worker-gone', 0, 0, 0, NULL, NULL, NULL),
    ('batch_in_progress', 4, 'c4', 1767225601000, NULL, 0, 3, 2, NULL, NULL, NULL),
    -- With a response, and with an error.
    ('batch_in_progress', 5, 'c5', 0, NULL, 0, 0, 0, 1767225601000, 1, CAST('{"custom_id":"c5"}
' AS BLOB)),
    ('batch_in_progress', 6, 'c6', 0, NULL, 0, 9, 0, 1767225601000, 0, CAST('{"custom_id":"c6"}
' AS BLOB)),
    ('batch_finalizing', 1, 'c1', 0, NULL, 0, 0, 0, 1767225601000, 1, CAST('{"custom_id":"c1"}
' AS BLOB)),
    ('batch_finalizing', 2, 'c2', 0, NULL, 0, 0, 0, NULL, NULL, NULL),
    ('batch_cancelling', 1, 'c1', 0, NULL, 0, 0, 0, NULL, NULL, NULL),
    ('batch_cancelling', 2, 'c2', 1767225601000, 'worker-gone', 0, 0, 0, NULL, NULL, NULL),
    ('batch_completed', 1, 'c1', 0, NULL, 0, 0, 0, 1767225602000, 1, CAST('{"custom_id":"c1"}
' AS BLOB));
INSERT INTO isotherm_workers VALUES ('worker-gone', 'm', 1500, 1767225601000);
