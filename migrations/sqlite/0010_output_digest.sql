-- SHA-256 of what the guest returned, written with the end of the execution; null where it returned nothing, or ended before
-- this version.
ALTER TABLE work_item ADD COLUMN output_digest BLOB;
