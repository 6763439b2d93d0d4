"""The paper's tables and figures as declarative constants; running fills records, rendering only reads them."""
