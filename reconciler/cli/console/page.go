package console

import "github.com/sandbox-lease/terraform-provider-sandbox/sandbox"

// ShowPages shows a list, which read returns page by page. show moves on what read begins after. A page shorter than
// size is the last one.
func ShowPages[T any](size int, read func() ([]T, error), show func(T) error) error {
	for {
		page, err := read()
		if err != nil {
			return err
		}
		for _, entry := range page {
			if err := show(entry); err != nil {
				return err
			}
		}
		if len(page) < size {
			return nil
		}
	}
}

// EveryPage reads a list page by page, each after the id of the last entry before. It is never nil.
func EveryPage[T any](read func(after string) ([]T, error), id func(T) string) ([]T, error) {
	all := []T{}
	for after := ""; ; {
		page, err := read(after)
		if err != nil {
			return nil, err
		}
		all = append(all, page...)
		if len(page) < sandbox.MaxPage {
			return all, nil
		}
		after = id(page[len(page)-1])
	}
}
