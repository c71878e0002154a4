package storage

import "strconv"

// BoundPages makes a SQLite ledger's disk full at so many pages of 4 KiB, and at no fewer than there are now.
func (s *Store) BoundPages(pages int64) error {
	return s.writes.Raw("PRAGMA max_page_count = " + strconv.FormatInt(pages, 10)).Scan(&pages).Error
}

// Synchronous returns SQLite's setting of when what is written reaches the disk, as the store's writer has it.
func (s *Store) Synchronous() (mode int, err error) {
	err = s.writes.Raw("PRAGMA synchronous").Scan(&mode).Error
	return mode, err
}
