//! Events: from the text of -e to what the kernel opens.
