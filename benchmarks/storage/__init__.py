"""Remote logs and Parquet files on S3."""
