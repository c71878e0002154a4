package storage

import "strconv"

// BoundPages makes a SQLite ledger's disk full at this many pages of 4 KiB, or at its current size if that is larger.
func (s *Store) BoundPages(pages int64) error {
	return s.writes.Raw("PRAGMA max_page_count = " + strconv.FormatInt(pages, 10)).Scan(&pages).Error
}

// Synchronous returns SQLite's setting "synchronous" of the store's writer. It decides when a commit reaches the disk.
func (s *Store) Synchronous() (mode int, err error) {
	err = s.writes.Raw("PRAGMA synchronous").Scan(&mode).Error
	return mode, err
}
