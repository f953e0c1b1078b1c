package tape

// Again goes back to a frame this reader has just passed, for a look at its
// payload after NextHeader told that it is worth one.
func (r *Reader) Again(c Cursor) {
	if r.file == nil || c.Segment != r.cur.Segment {
		r.leave()
		r.pos = -1
	}
	r.cur, r.nextSeq = c, 0
}

// Back is the cursor of the frame with n bytes of payload that ends at c.
func (c Cursor) Back(n int) Cursor {
	c.Offset -= HeaderSize + int64(n)
	return c
}
